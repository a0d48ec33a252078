// The level of a portable program that runs: the one that CALM_INSTRUCTIONS names, or the best.

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <string>

namespace {

#if defined(__AVX512BF16__)
constexpr char level[] = "x86-64-v4-bf16";
#elif defined(__AVX512F__)
constexpr char level[] = "x86-64-v4";
#elif defined(__AVX2__)
constexpr char level[] = "x86-64-v3";
#else
constexpr char level[] = "x86-64";
#endif

}  // namespace

BOOST_AUTO_TEST_CASE(kernels_run_in_launch_order) {
    char const* const asked = std::getenv("CALM_INSTRUCTIONS");
    if (asked != nullptr) {
        BOOST_TEST(level == std::string(asked));
        return;
    }
    __builtin_cpu_init();
    bool const best = __builtin_cpu_supports("avx512bf16") != 0;
    bool const better = __builtin_cpu_supports("avx512vl") != 0;
    bool const good = __builtin_cpu_supports("avx2") != 0;
    BOOST_TEST(level == std::string(best ? "x86-64-v4-bf16" : better ? "x86-64-v4" : good ? "x86-64-v3" : "x86-64"));
}
