// expect: no matching function for call to .require
// The sentence of an error is text or something that makes text, never a number.
#include "calm/base/error.hpp"

void check(bool good) {
#ifdef CALM_SHOULD_FAIL
    calm::require(good, calm::errc::usage, 42);
#else
    calm::require(good, calm::errc::usage, "calm::check: expected something good");
#endif
}
