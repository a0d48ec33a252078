#pragma once
/// \file
/// Layers: forward, backward, visit.
/// \shows{examples/06_network.cpp}

#include "calm/nn/attention.hpp"
#include "calm/nn/embedding.hpp"
#include "calm/nn/kv_cache.hpp"
#include "calm/nn/layer.hpp"
#include "calm/nn/linear.hpp"
#include "calm/nn/mlp.hpp"
#include "calm/nn/norm.hpp"
#include "calm/nn/param.hpp"
#include "calm/nn/repeated_layer.hpp"
#include "calm/nn/sequential.hpp"
