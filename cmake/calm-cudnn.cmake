# CUDA::cudnn, where cuDNN is beside the CUDA toolkit or where the system looks; attention in bf16 is the block kernels'
# without it. After find_package(CUDAToolkit).
if(NOT TARGET CUDA::cudnn)
    find_library(calm_cudnn cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
    mark_as_advanced(calm_cudnn)
    if(calm_cudnn)
        add_library(CUDA::cudnn INTERFACE IMPORTED)
        target_link_libraries(CUDA::cudnn INTERFACE "${calm_cudnn}")
    endif()
endif()
