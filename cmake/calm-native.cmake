# calm_native_flags: what CALM_NATIVE adds to every file.
set(calm_native_flags)
if(CALM_NATIVE)
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
