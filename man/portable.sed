# What scdoc leaves to the formatter's taste. Names that people copy must not be torn apart at a
# line's end, and a hyphen of an option must be the one that a shell takes.
/^\.ad l$/a\
.nr HY 0\
.ds AD l
/^\./b
# scdoc's own moves before a list's entry
/\\h'/b
s/\\\{0,1\}-/\\-/g
