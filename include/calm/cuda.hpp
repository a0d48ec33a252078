#pragma once
// The CUDA backend, for files that nvcc compiles: memory, context, launching, copies, products.

#include "calm/tensor/copy.hpp"
#include "calm/tensor/cuda/attention.hpp"
#include "calm/tensor/cuda/attention_plans.hpp"
#include "calm/tensor/cuda/blas.hpp"
#include "calm/tensor/cuda/context.hpp"
#include "calm/tensor/cuda/cudnn_graph.hpp"
#include "calm/tensor/cuda/device.hpp"
#include "calm/tensor/cuda/error.hpp"
#include "calm/tensor/cuda/graph.hpp"
#include "calm/tensor/cuda/launch.hpp"
#include "calm/tensor/cuda/matmul.hpp"
#include "calm/tensor/cuda/memory.hpp"
#include "calm/tensor/cuda/queue.hpp"
