-- All bids, with the parts of the partitions they go to.
select auction, bidder, price, date_time, extra, date_format(date_time, 'yyyy-MM-dd') as dt,
    date_format(date_time, 'HH:mm') as hm
from bid
