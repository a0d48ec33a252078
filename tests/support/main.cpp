// The main of every test program. Boost.Test runs the cases; the exit status is 77 (CTest: skipped) if some cases could
// not run here and none failed.
#include <boost/test/unit_test.hpp>

#include <cstdio>

#include "support/skipped.hpp"

int main(int argc, char** argv) {
    int const status = boost::unit_test::unit_test_main([] { return true; }, argc, argv);
    auto const& cases = calm::test::skipped_cases();
    for (auto const& one : cases) std::fprintf(stderr, "skipped: %s\n", one.c_str());
    return status == 0 && !cases.empty() ? 77 : status;
}
