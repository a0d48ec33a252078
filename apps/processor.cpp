// Reports a processor that lacks an instruction set the program was compiled for; otherwise it would die by SIGILL.
// Compiled for any processor (CMakeLists.txt), and runs before everything else.

#include "processor.hpp"

#if defined(__x86_64__)

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "calm/base/error.hpp"

namespace {

[[gnu::constructor(101)]] void check_processor() {
    auto const& needed = calm::apps::compiled_for;
    char const* missing = nullptr;
    auto const check = [&](bool needs, bool has, char const* name) {
        if (needs && !has) missing = name;
    };
    __builtin_cpu_init();
    check(needed.avx512bf16, __builtin_cpu_supports("avx512bf16"), "AVX512-BF16");
    check(needed.avx512vnni, __builtin_cpu_supports("avx512vnni"), "AVX512-VNNI");
    check(needed.avx512vl, __builtin_cpu_supports("avx512vl"), "AVX-512VL");
    check(needed.avx512dq, __builtin_cpu_supports("avx512dq"), "AVX-512DQ");
    check(needed.avx512bw, __builtin_cpu_supports("avx512bw"), "AVX-512BW");
    check(needed.avx512f, __builtin_cpu_supports("avx512f"), "AVX-512");
    check(needed.bmi2, __builtin_cpu_supports("bmi2"), "BMI2");
    check(needed.fma, __builtin_cpu_supports("fma"), "FMA");
    check(needed.avx2, __builtin_cpu_supports("avx2"), "AVX2");
    check(needed.avx, __builtin_cpu_supports("avx"), "AVX");
    if (missing == nullptr) return;
    std::fprintf(stderr,
                 "%s: expected a processor with %s, for which this program was compiled, found one without: build on "
                 "this machine, or for any processor with -DCALM_NATIVE=OFF\n",
                 program_invocation_short_name, missing);
    ::_exit(static_cast<int>(calm::errc::device));
}

}  // namespace

#endif
