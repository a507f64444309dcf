-- How often each bidder bids in ten seconds of processing.
select bidder, count(*) as bid_count, window.start as starttime, window.end as endtime
from bid group by bidder, window(p_time, '10 seconds')
