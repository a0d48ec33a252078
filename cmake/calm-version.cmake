# Sets calm_version to "major.minor.patch", read from include/calm/version.hpp.
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../include/calm/version.hpp" calm_version_line REGEX "^#define CALM_VERSION [0-9]+$")
string(REGEX REPLACE ".* " "" calm_version_number "${calm_version_line}")
math(EXPR calm_version_major "${calm_version_number} / 10000")
math(EXPR calm_version_minor "${calm_version_number} / 100 % 100")
math(EXPR calm_version_patch "${calm_version_number} % 100")
set(calm_version ${calm_version_major}.${calm_version_minor}.${calm_version_patch})
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/../include/calm/version.hpp")
