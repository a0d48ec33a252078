# CALM_CUDA=ON|OFF|AUTO: the backend `cuda`. AUTO uses nvcc 12.4 or later if it is found, and otherwise prints the
# reason; ON requires it. Sets calm_has_cuda and defines calm::cuda, which .cu files link. A project without .cu files
# needs none of this.
set(calm_cuda_default OFF)
if(PROJECT_IS_TOP_LEVEL)
    set(calm_cuda_default AUTO)
endif()
set(CALM_CUDA ${calm_cuda_default} CACHE STRING "Compile for NVIDIA GPUs: ON, OFF, or AUTO (if nvcc 12.4 or later is found)")
set_property(CACHE CALM_CUDA PROPERTY STRINGS AUTO ON OFF)
set(calm_has_cuda OFF)

# calm_find_nvcc(REASON): sets REASON if CUDA cannot be compiled; otherwise leaves it unchanged and sets
# CMAKE_CUDA_COMPILER and calm_nvcc_release.
function(calm_find_nvcc reason)
    find_program(calm_nvcc nvcc HINTS "${CMAKE_CUDA_COMPILER}" ENV CUDACXX PATHS /usr/local/cuda/bin /opt/cuda/bin)
    mark_as_advanced(calm_nvcc)
    if(NOT calm_nvcc)
        set(${reason} "nvcc is not in the PATH" PARENT_SCOPE)
        return()
    endif()
    execute_process(COMMAND "${calm_nvcc}" --version OUTPUT_VARIABLE text ERROR_QUIET)
    string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" release "${text}")
    if(NOT CMAKE_MATCH_1 OR CMAKE_MATCH_1 VERSION_LESS 12.4)
        set(${reason} "${calm_nvcc} is release '${CMAKE_MATCH_1}', 12.4 or later is needed" PARENT_SCOPE)
        return()
    endif()
    set(calm_nvcc_release ${CMAKE_MATCH_1} PARENT_SCOPE)
    include(CheckLanguage)
    set(ENV{CUDACXX} "${calm_nvcc}")
    check_language(CUDA)  # sets CMAKE_CUDA_COMPILER, to NOTFOUND if nvcc does not work
    if(NOT CMAKE_CUDA_COMPILER)
        set(${reason} "${calm_nvcc} does not compile here" PARENT_SCOPE)
        return()
    endif()
    find_package(CUDAToolkit 12.4 QUIET)
    if(NOT CUDAToolkit_FOUND)
        set(${reason} "the CUDA toolkit of ${calm_nvcc} is incomplete" PARENT_SCOPE)
    endif()
endfunction()

if(CALM_CUDA)
    set(reason)
    calm_find_nvcc(reason)
    if(reason AND CALM_CUDA STREQUAL AUTO)
        message(STATUS "CALM_CUDA: off, ${reason}")
    elseif(reason)
        message(FATAL_ERROR "CALM_CUDA=${CALM_CUDA}: ${reason}; CALM_CUDA=OFF builds without")
    else()
        # Code for the GPUs of data centres, and PTX for what comes after them: of 10.0, which 11.0 and 12.0 take alike.
        # No kernel uses features of 9.0a or 10.0a. nvcc supports 10.0 from release 12.8 on.
        if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND calm_nvcc_release VERSION_LESS 12.8)
            set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
            message(STATUS "CALM_CUDA: nvcc ${calm_nvcc_release} does not know compute capability 10, 12.8 does: "
                           "such GPUs compile the PTX of 9.0 when a program starts")
        elseif(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
            set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
        endif()
        # Keep the existing options for the C++ compiler only.
        get_directory_property(options COMPILE_OPTIONS)
        set_directory_properties(PROPERTIES COMPILE_OPTIONS "$<$<COMPILE_LANGUAGE:CXX>:${options}>")
        if(PROJECT_IS_TOP_LEVEL)
            # nvcc passes on most warnings to the host compiler. The code that it generates is not ISO C++ (-Wpedantic),
            # and its headers have a global type `half` (-Wshadow). Kernels must not call host functions.
            list(FILTER options INCLUDE REGEX "^-W")
            list(REMOVE_ITEM options -Wpedantic)
            # Those of clang++ alone: nvcc compiles host code with g++ also where the C++ compiler is clang++.
            list(FILTER options EXCLUDE REGEX "^-Wreserved")
            list(TRANSFORM options REPLACE "^-Wshadow$" "-Wshadow=local")
            list(TRANSFORM options PREPEND "-Xcompiler=")
            add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:${options}>"
                                "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror cross-execution-space-call>")
        endif()
        enable_language(CUDA)
        include("${CMAKE_CURRENT_LIST_DIR}/calm-cuda20.cmake")
        find_package(CUDAToolkit 12.4 REQUIRED)
        include("${CMAKE_CURRENT_LIST_DIR}/calm-cudnn.cmake")
        set(calm_has_cuda ON)
        message(STATUS "CALM_CUDA: on, nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")

        add_library(calm_cuda INTERFACE)
        add_library(calm::cuda ALIAS calm_cuda)
        set_target_properties(calm_cuda PROPERTIES EXPORT_NAME cuda)
        target_link_libraries(calm_cuda INTERFACE calm_calm CUDA::cudart_static $<TARGET_NAME_IF_EXISTS:CUDA::cublasLt>
                                               $<TARGET_NAME_IF_EXISTS:CUDA::cudnn>)
        target_compile_features(calm_cuda INTERFACE cuda_std_20)
        target_compile_options(calm_cuda INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
        # All files that are linked together use the same instruction-set flags.
        list(TRANSFORM calm_native_flags PREPEND "-Xcompiler=" OUTPUT_VARIABLE native)
        target_compile_options(calm_cuda INTERFACE "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CUDA>:${native}>>")

        # CALM_NCCL=ON|OFF|AUTO: calm::nccl, for ranks whose GPUs communicate by NCCL (calm/ranks/nccl.hpp). AUTO uses
        # NCCL if it is found; ON requires it.
        set(CALM_NCCL AUTO CACHE STRING "Communication between GPUs of ranks by NCCL: ON, OFF, or AUTO (if NCCL is found)")
        set_property(CACHE CALM_NCCL PROPERTY STRINGS AUTO ON OFF)
        if(CALM_NCCL)
            find_package(NCCL QUIET)
            if(NCCL_FOUND)
                calm_component(nccl calm_cuda NCCL::NCCL)
            else()
                calm_missing(CALM_NCCL NCCL libnccl-dev "what GPUs send each other goes by the host")
            endif()
        endif()
    endif()
endif()
