# awk -f chains.awk HEADER...: each header in one line, behind one that it includes, directly or through others; the longest
# lines first. What stands behind an #if may not be included, and counts for nothing.
FNR == 1 { headers[++count] = FILENAME; depth = 0 }
/^#if/ { ++depth }
/^#endif/ { --depth }
depth == 0 && /^#include "calm\// { split($0, part, "\""); direct[FILENAME] = direct[FILENAME] " " part[2] }

function includes_of(header,    i, n, list, g) {
    if (header in size) return
    size[header] = 0
    n = split(direct[header], list, " ")
    for (i = 1; i <= n; ++i) {
        includes_of(list[i])
        includes[header, list[i]] = 1
        for (g = 1; g <= count; ++g)
            if ((list[i], headers[g]) in includes) includes[header, headers[g]] = 1
    }
    for (g = 1; g <= count; ++g) size[header] += (header, headers[g]) in includes
}

# The header with most includes of those that no line has yet, and that `above` includes if it is one.
function next_below(above,    i, found) {
    found = ""
    for (i = 1; i <= count; ++i)
        if (!(headers[i] in taken) && (above == "" || (above, headers[i]) in includes))
            if (found == "" || size[headers[i]] > size[found]) found = headers[i]
    return found
}

END {
    for (i = 1; i <= count; ++i) includes_of(headers[i])
    while ((header = next_below("")) != "") {
        line = ""
        for (; header != ""; header = next_below(header)) {
            taken[header] = 1
            line = header " " line
        }
        print line
    }
}
