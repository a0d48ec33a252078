# Headers and a package: find_package(calm 0.1 [COMPONENTS text io]).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(calm_package_dir ${CMAKE_INSTALL_DATADIR}/cmake/calm)
install(DIRECTORY include/calm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")
foreach(component calm text io)
    if(TARGET calm_${component})
        install(TARGETS calm_${component} EXPORT calm-${component})
        install(EXPORT calm-${component} NAMESPACE calm:: DESTINATION ${calm_package_dir})
    endif()
endforeach()
write_basic_package_version_file(calm-config-version.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES cmake/calm-config.cmake cmake/FindPCRE2.cmake ${PROJECT_BINARY_DIR}/calm-config-version.cmake
        DESTINATION ${calm_package_dir})
