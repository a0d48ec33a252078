# CPack runs this before it packs the Debian package: the licence, the changelogs and the manual pages go to the places
# and into the forms of Debian's policy.
set(usr "${CPACK_TEMPORARY_DIRECTORY}/usr")
set(doc "${usr}/share/doc/${CPACK_PACKAGE_NAME}")
set(man "${usr}/share/man/man1")
if(NOT EXISTS "${usr}/bin/calm")
    message(FATAL_ERROR "expected the program calm, found none: build the package's programs first, "
                        "cmake --build --preset portable")
endif()

file(READ "${CMAKE_CURRENT_LIST_DIR}/../LICENSE" license)
string(REGEX MATCH "Copyright \\(c\\) ([^\n]*)\n+(.*)" matched "${license}")
set(holder "${CMAKE_MATCH_1}")
string(STRIP "${CMAKE_MATCH_2}" license)
string(REPLACE "\n" "\n " license "\n${license}")
string(REPLACE "\n \n" "\n .\n" license "${license}")
file(WRITE "${doc}/copyright"
     "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: calm-cpp\n"
     "Comment: The programs contain code of nlohmann-json (MIT), toml++ (MIT) and Boost (BSL-1.0).\n\n"
     "Files: *\nCopyright: ${holder}\nLicense: Expat${license}\n")
file(REMOVE_RECURSE "${usr}/share/licenses")

string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE "${doc}/changelog"
     "calm (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n"
     "  * What users notice: CHANGELOG.md.gz in this folder.\n\n"
     " -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  ${now}\n")
file(COPY "${CMAKE_CURRENT_LIST_DIR}/../CHANGELOG.md" DESTINATION "${doc}")
execute_process(COMMAND gzip -9nf "${doc}/changelog" "${doc}/CHANGELOG.md" "${man}/calm.1" COMMAND_ERROR_IS_FATAL ANY)

# The launcher's programs have its manual page.
file(GLOB levels RELATIVE "${usr}/bin" "${usr}/bin/calm.*")
foreach(program IN LISTS levels)
    file(CREATE_LINK calm.1.gz "${man}/${program}.1.gz" SYMBOLIC)
endforeach()

# g++ needs -Wno-psabi when it includes the headers, so the .pc files have it.
file(WRITE "${usr}/share/lintian/overrides/${CPACK_PACKAGE_NAME}" "calm: pkg-config-bad-directive -Wno-psabi *\n")
