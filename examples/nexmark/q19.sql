-- The ten highest bids of each auction.
select * from (
    select *, row_number() over (partition by auction order by price desc, date_time) as rank_number from bid
) b
where rank_number <= 10
