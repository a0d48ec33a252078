# calm_native_flags: what CALM_NATIVE or CALM_INSTRUCTIONS adds to every file.
set(CALM_INSTRUCTIONS "" CACHE STRING "x86-64, x86-64-v3 or x86-64-v4: a level of instructions in place of this very processor's")
set(calm_native_flags)
if(CALM_INSTRUCTIONS AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(calm_native_flags -march=${CALM_INSTRUCTIONS})
elseif(CALM_NATIVE AND NOT CALM_PORTABLE)
    set(calm_native_flags -march=native)
    # g++ 12 takes an AVX-512 AMD for a znver3; Eigen's product kernel was 20 % slower so.
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
