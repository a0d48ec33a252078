#pragma once
// Instructions beyond those that every processor of the kind has.

namespace calm::apps {

// Whether the programs were compiled for them (-march=native).
struct instruction_sets {
    bool avx = false;
    bool avx2 = false;
    bool fma = false;
    bool bmi2 = false;
    bool avx512f = false;
    bool avx512bw = false;
    bool avx512dq = false;
    bool avx512vl = false;
    bool avx512vnni = false;
    bool avx512bf16 = false;
};

extern instruction_sets const compiled_for;  // constant: there before any code runs
extern char const* const instructions;       // the widest of them that products use, as users name it

}  // namespace calm::apps
