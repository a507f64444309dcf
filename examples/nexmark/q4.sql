-- The mean of the highest bids in each category.
select category, avg(final) as final
from (
    select a.id, a.category, max(b.price) as final
    from auction a, bid b
    where a.id = b.auction and b.date_time between a.date_time and a.expires
    group by a.id, a.category
) q
group by category
