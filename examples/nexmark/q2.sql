-- The bids on some auctions.
select auction, price from bid where mod(auction, 123) = 0
