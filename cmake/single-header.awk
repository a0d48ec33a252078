# awk -v root=DIR -v license=FILE -f single-header.awk HEADER...: prints one header that needs no others of calm: the
# headers DIR/HEADER and those that they include, each once and after what it includes. Every header compiles alone, so
# this order holds.
function fail(text) {
    print "single-header.awk: " text > "/dev/stderr"
    failed = 1
    exit 1
}

# A file's lines; returns their number.
function read(path, lines,    status, count) {
    while ((status = (getline lines[count + 1] < path)) > 0) ++count
    if (status < 0) fail("expected the file " path ", cannot read it")
    close(path)
    return count
}

function emit(header,    lines, count, i, part) {
    if (header in emitted) return
    emitted[header] = 1
    count = read(root "/" header, lines)
    for (i = 1; i <= count; ++i)
        if (lines[i] ~ /^#include "calm\//) {
            split(lines[i], part, "\"")
            emit(part[2])
        }
    print "\n// " header
    for (i = 1; i <= count; ++i)
        if (lines[i] !~ /^#include "calm\// && lines[i] != "#pragma once") print lines[i]
}

BEGIN {
    print "#pragma once"
    count = read(license, terms)
    for (i = 1; i <= count; ++i) print terms[i] == "" ? "//" : "// " terms[i]
    for (i = 1; i < ARGC; ++i) emit(ARGV[i])
    exit failed
}
