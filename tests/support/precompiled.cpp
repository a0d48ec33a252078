// The unit for which CMake precompiles the headers of all tests.
