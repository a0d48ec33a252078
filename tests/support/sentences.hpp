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

// The message of an error, which must have code errc::usage.
template <class Call> std::string usage_sentence(Call&& call) {
    try {
        call();
    } catch (error const& thrown) {
        BOOST_TEST((thrown.code() == errc::usage));
        return thrown.what();
    }
    return {};
}

inline bool has(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

}  // namespace calm::test
