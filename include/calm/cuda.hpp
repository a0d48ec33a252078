#pragma once
// The CUDA backend, for files that nvcc compiles: memory, context, launching, copies, products.

#include "calm/tensor/core/copy.hpp"
#include "calm/tensor/device/cuda/attention_plans.hpp"
#include "calm/tensor/device/cuda/blas.hpp"
#include "calm/tensor/device/cuda/context.hpp"
#include "calm/tensor/device/cuda/cudnn_graph.hpp"
#include "calm/tensor/device/cuda/device.hpp"
#include "calm/tensor/device/cuda/error.hpp"
#include "calm/tensor/device/cuda/graph.hpp"
#include "calm/tensor/device/cuda/launch.hpp"
#include "calm/tensor/device/cuda/memory.hpp"
#include "calm/tensor/device/cuda/queue.hpp"
#include "calm/tensor/kernels/cuda/attention.hpp"
#include "calm/tensor/kernels/cuda/matmul.hpp"
