// Compiled with the flags of the rest of the program, unlike processor.cpp.

#include "processor.hpp"

namespace calm::apps {

constinit instruction_sets const compiled_for{
#ifdef __AVX__
    .avx = true,
#endif
#ifdef __AVX2__
    .avx2 = true,
#endif
#ifdef __FMA__
    .fma = true,
#endif
#ifdef __BMI2__
    .bmi2 = true,
#endif
#ifdef __AVX512F__
    .avx512f = true,
#endif
#ifdef __AVX512BW__
    .avx512bw = true,
#endif
#ifdef __AVX512DQ__
    .avx512dq = true,
#endif
#ifdef __AVX512VL__
    .avx512vl = true,
#endif
#ifdef __AVX512VNNI__
    .avx512vnni = true,
#endif
#ifdef __AVX512BF16__
    .avx512bf16 = true,
#endif
};

constinit char const* const instructions =
#if defined(__AVX512VNNI__) && defined(__AVX512BF16__)
    "AVX-512 with VNNI and BF16";
#elif defined(__AVX512F__)
    "AVX-512";
#elif defined(__AVX2__)
    "AVX2";
#elif defined(__SSE2__)
    "SSE2";
#else
    "no vectors";
#endif

}  // namespace calm::apps
