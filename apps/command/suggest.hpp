#pragma once
// Suggests the name that a misspelled one probably meant.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace calm::apps {

// Number of letters to insert, delete, change or swap with a neighbour to turn a into b.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> above(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        next[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            std::size_t const change = row[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            next[j] = std::min({change, row[j] + 1, next[j - 1] + 1});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                next[j] = std::min(next[j], above[j - 2] + 1);
        }
        above.swap(row);
        row.swap(next);
    }
    return row.back();
}

// "; did you mean X?" with the shortest name that begins with `found`, else the nearest one. Empty if more than a third
// of the letters differ, or if `found` is too long for a name.
inline std::string did_you_mean(std::string_view found, std::vector<std::string> const& names) {
    if (names.empty() || found.size() > 100) return "";
    std::string const* longer = nullptr;
    for (auto const& name : names)
        if (found.size() >= 4 && name.starts_with(found) && (longer == nullptr || name.size() < longer->size()))
            longer = &name;
    if (longer != nullptr) return "; did you mean " + *longer + "?";
    auto const nearest = std::min_element(names.begin(), names.end(), [&](std::string const& a, std::string const& b) {
        return edit_distance(found, a) < edit_distance(found, b);
    });
    std::size_t const near = std::max<std::size_t>(1, std::max(found.size(), nearest->size()) / 3);
    return edit_distance(found, *nearest) <= near ? "; did you mean " + *nearest + "?" : "";
}

inline std::string listed(std::vector<std::string> const& names) {
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i)
        text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
    return text;
}

}  // namespace calm::apps
