#pragma once
// Cases that cannot run here are skipped visibly: the program names each with its reason, and CTest counts it as
// skipped.

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

namespace calm::test {

// The names of the skipped cases, each with its reason.
inline std::vector<std::string>& skipped_cases() {
    static std::vector<std::string> cases;
    return cases;
}

// Marks a case, by default the running one, as skipped; the case then returns without a check.
inline void skip(std::string const& why,
                 boost::unit_test::test_unit_id test = boost::unit_test::framework::current_test_unit().p_id) {
    auto const name = boost::unit_test::framework::get(test, boost::unit_test::TUT_ANY).full_name();
    skipped_cases().push_back(name + ": " + why);
}

}  // namespace calm::test
