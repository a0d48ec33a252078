#pragma once
// Instruction sets beyond the baseline of the processor family.

namespace calm::apps {

// True for each set that the programs were compiled for (-march=native).
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

extern instruction_sets const compiled_for;  // constant-initialised: valid before any code runs
extern char const* const instructions;       // the widest set that products use, as users call it

}  // namespace calm::apps
