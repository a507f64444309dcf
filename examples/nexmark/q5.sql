-- The auctions with the most bids of ten seconds, every two seconds.
with counts as (
    select auction, count(*) as num, window.start as starttime, window.end as endtime
    from bid group by auction, window(date_time, '10 seconds', '2 seconds')
),
most as (select max(num) as num, starttime, endtime from counts group by starttime, endtime)
select c.auction, c.num, c.starttime
from counts c join most m on c.starttime = m.starttime and c.endtime = m.endtime and c.num >= m.num
