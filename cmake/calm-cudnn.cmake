# Defines CUDA::cudnn if cuDNN is next to the CUDA toolkit or in the system's folders. Without it, attention in bf16
# uses the block kernels. Include this after find_package(CUDAToolkit).
if(NOT TARGET CUDA::cudnn)
    find_library(calm_cudnn cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
    mark_as_advanced(calm_cudnn)
    if(calm_cudnn)
        add_library(CUDA::cudnn INTERFACE IMPORTED)
        target_link_libraries(CUDA::cudnn INTERFACE "${calm_cudnn}")
    endif()
endif()
