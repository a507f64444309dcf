-- Who came in the last ten seconds, and sells at once.
select p.id, p.name, p.starttime
from (
    select id, name, window.start as starttime, window.end as endtime
    from person group by id, name, window(date_time, '10 seconds')
) p join (
    select seller, window.start as starttime, window.end as endtime
    from auction group by seller, window(date_time, '10 seconds')
) a on p.id = a.seller and p.starttime = a.starttime and p.endtime = a.endtime
