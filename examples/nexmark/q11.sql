-- How often each bidder bids while active.
select bidder, count(*) as bid_count, session_window.start as starttime, session_window.end as endtime
from bid group by bidder, session_window(date_time, '10 seconds')
