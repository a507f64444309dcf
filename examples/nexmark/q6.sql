-- The mean of the last ten auctions of each seller, and of the one before them, by their winning bids.
select id, seller, avg(price) over (
    partition by seller order by date_time, id rows between 10 preceding and current row
) as price
from (
    select a.id, a.seller, b.price, b.date_time
    from auction a join bid b on a.id = b.auction
    where b.date_time between a.date_time and a.expires
    qualify row_number() over (partition by a.id, a.seller order by b.price desc, b.date_time) <= 1
) q
