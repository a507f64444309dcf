-- The last bid of each bidder on each auction.
select auction, bidder, price, channel, url, date_time, extra
from bid
qualify row_number() over (partition by bidder, auction order by date_time desc) <= 1
