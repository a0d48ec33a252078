# awk -f chains.awk HEADER...: puts each header into one line, after a header that it includes, directly or through
# others; longest lines first. Includes after an #if are ignored, as they may not happen.
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

# The header with the most includes that is in no line yet and, if `above` is one, is included by it.
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
