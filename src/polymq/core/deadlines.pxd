# No C helpers needed: the annotations in deadlines.py say it all.
