-- Pass on all bids.
select auction, bidder, price, date_time, extra from bid
