-- The highest bids of every ten seconds.
select b.auction, b.price, b.bidder, b.date_time, b.extra
from bid b join (
    select max(price) as price, window.end as date_time from bid group by window(date_time, '10 seconds')
) m on b.price = m.price
where b.date_time between m.date_time - interval '10' second and m.date_time
