# CPack makes the Debian package `calm` of all that is installed: the program for every x86-64 processor with its manual
# page and completion, the headers and the CMake package.
set(CALM_PACKAGE_MAINTAINER "the calm-cpp authors <maintainers@calm-cpp.invalid>" CACHE STRING
    "Name and address of the one who makes the package")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME calm)
set(CPACK_PACKAGE_VENDOR "the calm-cpp authors")
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${CALM_PACKAGE_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_HOMEPAGE https://arxiv.org/abs/2510.27688)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# For the headers, for sizes of models that the program compiles on demand, and gnuplot for `calm plot --format png`.
string(CONCAT CPACK_DEBIAN_PACKAGE_SUGGESTS
       "g++ (>= 4:12), libeigen3-dev, libpcre2-dev, libsimdjson-dev, zlib1g-dev, libzstd-dev, nlohmann-json3-dev, "
       "libtomlplusplus-dev, libboost-dev, libssl-dev, gnuplot-nox")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "continuous autoregressive language models (CALM)")
string(CONCAT CPACK_PACKAGE_DESCRIPTION
       "The program calm trains language models that generate several tokens per\n"
       "step, on your own text and an ordinary processor. It also generates texts,\n"
       "answers completions over HTTP, and evaluates and compares models.\n\n"
       "The headers in /usr/include/calm are a C++20 library for the same, found by\n"
       "find_package and pkg-config.")
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/calm-debian-files.cmake")
include(CPack)
