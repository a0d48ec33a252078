# Installs the headers and a CMake package, find_package(calm 0.2 [COMPONENTS text io mpi openssl icu cuda nccl]), which
# also works from this build folder. For other build systems it installs calm.pc, calm-text.pc and calm-io.pc.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(calm_package_dir ${CMAKE_INSTALL_DATADIR}/cmake/calm)
set(calm_pkgconfig_dir ${CMAKE_INSTALL_DATADIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/calm)
install(DIRECTORY include/calm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")

# calm_single.hpp: what needs no package in one header, for single files and Compiler Explorer.
string(JOIN " " calm_single_headers calm/tensor.hpp calm/nn.hpp calm/loss.hpp calm/model.hpp calm/sample.hpp
       calm/evaluate.hpp calm/train/optimizer.hpp calm/train/schedule.hpp)
install(CODE "
    set(single \"${PROJECT_BINARY_DIR}/calm_single.hpp\")
    execute_process(COMMAND awk -v \"root=${PROJECT_SOURCE_DIR}/include\" -v \"license=${PROJECT_SOURCE_DIR}/LICENSE\"
                            -f \"${PROJECT_SOURCE_DIR}/cmake/single-header.awk\" ${calm_single_headers}
                    OUTPUT_FILE \"\${single}\" COMMAND_ERROR_IS_FATAL ANY)
    file(INSTALL \"\${single}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}\")")

# The program `calm` with its manual page, completion and models, if it was built.
if(CALM_APPS)
    set(installed calm)
    if(CALM_PORTABLE)
        calm_levels(levels)
        list(TRANSFORM levels PREPEND calm. OUTPUT_VARIABLE for_levels)
        list(APPEND installed ${for_levels})
    endif()
    install(TARGETS ${installed} OPTIONAL)
    install(DIRECTORY models/ DESTINATION ${CMAKE_INSTALL_DATADIR}/calm/models
            PATTERN make EXCLUDE PATTERN finish EXCLUDE)
    # The program compiles sizes on demand from its own headers too. They are private: projects do not include them.
    install(DIRECTORY apps/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/calm-programs FILES_MATCHING PATTERN "*.hpp")
    install(CODE "
        set(program \"$<TARGET_FILE:calm>\")
        if(EXISTS \"\${program}\")
            file(INSTALL \"${PROJECT_SOURCE_DIR}/docs/calm.1\" DESTINATION
                 \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1\")
            execute_process(COMMAND \"\${program}\" --completion bash OUTPUT_VARIABLE completion COMMAND_ERROR_IS_FATAL ANY)
            file(WRITE \"${PROJECT_BINARY_DIR}/completion/calm\" \"\${completion}\")
            file(INSTALL \"${PROJECT_BINARY_DIR}/completion/calm\" DESTINATION
                 \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/bash-completion/completions\")
        endif()")
endif()

# calm_export(NAME): exports calm::NAME.
function(calm_export name)
    install(TARGETS calm_${name} EXPORT calm-${name})
    install(EXPORT calm-${name} NAMESPACE calm:: DESTINATION ${calm_package_dir})
    export(EXPORT calm-${name} NAMESPACE calm:: FILE "${PROJECT_BINARY_DIR}/calm-${name}.cmake")
endfunction()

# calm_package(NAME PC DESCRIPTION REQUIRES FLAGS): exports calm::NAME and installs an equivalent PC.pc. FLAGS are used
# for both compiling and linking.
function(calm_package name pc_name pc_description pc_requires pc_flags)
    if(NOT TARGET calm_${name})
        return()
    endif()
    calm_export(${name})
    # The prefix is relative to the .pc file, so that an installation can be moved.
    file(RELATIVE_PATH pc_prefix "/${calm_pkgconfig_dir}" "/")
    string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
    configure_file(cmake/calm.pc.in ${pc_name}.pc @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/${pc_name}.pc" DESTINATION ${calm_pkgconfig_dir})
endfunction()
calm_package(calm calm "${PROJECT_DESCRIPTION}" "eigen3 >= 3.4" "-pthread")
calm_package(text calm-text "Tokenizers, corpora and training of calm"
             "calm = ${PROJECT_VERSION}, libpcre2-8, simdjson, zlib, libzstd" "")
calm_package(io calm-io "Model directories of calm" "calm = ${PROJECT_VERSION}, simdjson, nlohmann_json" "")
if(TARGET calm_mpi)
    calm_export(mpi)  # no .pc: the MPI compiler wrappers add their flags
endif()
if(TARGET calm_openssl)
    calm_export(openssl)
endif()
if(TARGET calm_icu)
    calm_export(icu)  # no .pc: it would differ from calm-text by ICU's alone, icu-uc, and -DCALM_ICU
endif()
if(calm_has_cuda)
    calm_export(cuda)  # no .pc: nvcc does not accept the flags of the other components
    if(TARGET calm_nccl)
        calm_export(nccl)
    endif()
    foreach(file calm-cuda20.cmake calm-cudnn.cmake)
        configure_file(cmake/${file} ${file} COPYONLY)
        install(FILES cmake/${file} DESTINATION ${calm_package_dir})
    endforeach()
endif()

write_basic_package_version_file(calm-config-version.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
configure_file(cmake/calm-config.cmake calm-config.cmake COPYONLY)
configure_file(cmake/FindPCRE2.cmake FindPCRE2.cmake COPYONLY)
configure_file(cmake/Findzstd.cmake Findzstd.cmake COPYONLY)
configure_file(cmake/FindNCCL.cmake FindNCCL.cmake COPYONLY)
configure_file(cmake/calm-portable.cmake calm-portable.cmake COPYONLY)
configure_file(cmake/calm-launcher.cpp calm-launcher.cpp COPYONLY)
install(FILES cmake/calm-config.cmake cmake/FindPCRE2.cmake cmake/Findzstd.cmake cmake/FindNCCL.cmake cmake/calm-portable.cmake cmake/calm-launcher.cpp
              "${PROJECT_BINARY_DIR}/calm-config-version.cmake" DESTINATION ${calm_package_dir})
