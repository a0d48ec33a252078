#pragma once
/// \file
/// All modules, without the optional headers for Eigen, GPUs, MPI, TCP and NCCL. A program that needs no model
/// directories compiles faster with calm/train.hpp.
/// \shows{examples/01_first_model.cpp}

#include "calm/base.hpp"
#include "calm/evaluate.hpp"
#include "calm/io.hpp"
#include "calm/language_model.hpp"
#include "calm/loss.hpp"
#include "calm/model.hpp"
#include "calm/nn.hpp"
#include "calm/ranks.hpp"
#include "calm/runs.hpp"
#include "calm/sample.hpp"
#include "calm/tensor.hpp"
#include "calm/text.hpp"
#include "calm/train.hpp"
#include "calm/version.hpp"
