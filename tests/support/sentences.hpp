#pragma once
// The error messages of calls.

#include <boost/test/unit_test.hpp>

#include <string>
#include <string_view>

#include "calm/base/error.hpp"

namespace calm::test {

// The message of the error that a call throws; empty if it throws none.
template <class Error, class Call> std::string sentence_of(Call&& call) {
    try {
        call();
    } catch (Error const& thrown) {
        return thrown.what();
    }
    return {};
}

// The message of an error, which must have this code.
template <class Call> std::string sentence_of(errc code, Call&& call) {
    try {
        call();
    } catch (error const& thrown) {
        BOOST_TEST((thrown.code() == code));
        return thrown.what();
    }
    return {};
}
template <class Call> std::string usage_sentence(Call&& call) {
    return sentence_of(errc::usage, call);
}
template <class Call> std::string distributed_sentence(Call&& call) {
    return sentence_of(errc::distributed, call);
}

// The lines of a table without the blanks that align its columns.
inline std::string unaligned(std::string_view table) {
    std::string text;
    for (char const c : table)
        if (c != ' ' || !text.ends_with(' ')) text += c;
    return text;
}

inline bool has(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

}  // namespace calm::test
