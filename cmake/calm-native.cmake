# Sets calm_native_flags: the compiler flags of CALM_NATIVE or CALM_INSTRUCTIONS, used for every file.
set(CALM_INSTRUCTIONS "" CACHE STRING "Instruction-set level x86-64, x86-64-v3 or x86-64-v4; empty: see CALM_NATIVE")
set(calm_native_flags)
if(CALM_INSTRUCTIONS AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(calm_native_flags -march=${CALM_INSTRUCTIONS})
elseif(CALM_NATIVE AND NOT CALM_PORTABLE)
    set(calm_native_flags -march=native)
    # g++ 12 takes AMD processors with AVX-512 for znver3; with that tuning Eigen's product kernel was 20 % slower.
    include(CheckCXXSourceCompiles)
    set(CMAKE_REQUIRED_FLAGS -march=native)
    check_cxx_source_compiles("#if !defined(__AVX512F__) || !defined(__tune_znver3__)
                               #error
                               #endif
                               int main() {}" CALM_AVX512_TUNED_AS_ZNVER3)
    unset(CMAKE_REQUIRED_FLAGS)
    if(CALM_AVX512_TUNED_AS_ZNVER3 AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
        list(APPEND calm_native_flags -mtune=icelake-server)
    endif()
endif()
