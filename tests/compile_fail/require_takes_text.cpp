// expect: no matching function for call to .require
// An error message is text or a callable that returns text, never a number.
#include "calm/base/error.hpp"

void check(bool good) {
#ifdef CALM_SHOULD_FAIL
    calm::require(good, calm::errc::usage, 42);
#else
    calm::require(good, calm::errc::usage, "calm::check: expected something good");
#endif
}
