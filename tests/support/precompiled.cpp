// The source file for which CMake precompiles the headers of all tests.
