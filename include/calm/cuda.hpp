#pragma once
/// \file
/// The CUDA backend, for files that nvcc compiles: memory, context, launching, copies, products.
/// \shows{tests/consumer/project/device.cu}

#include "calm/tensor/core/copy.hpp"
#include "calm/tensor/detail/device/cuda/attention_plans.hpp"
#include "calm/tensor/detail/device/cuda/blas.hpp"
#include "calm/tensor/detail/device/cuda/cudnn_graph.hpp"
#include "calm/tensor/detail/device/cuda/device.hpp"
#include "calm/tensor/detail/device/cuda/error.hpp"
#include "calm/tensor/detail/device/cuda/graph.hpp"
#include "calm/tensor/detail/device/cuda/launch.hpp"
#include "calm/tensor/detail/device/cuda/memory.hpp"
#include "calm/tensor/detail/device/cuda/queue.hpp"
#include "calm/tensor/detail/kernels/cuda/attention.hpp"
#include "calm/tensor/detail/kernels/cuda/matmul.hpp"
#include "calm/tensor/device/cuda/context.hpp"
