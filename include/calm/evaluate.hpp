#pragma once
/// \file
/// Evaluation on unseen text: BrierLM, likelihoods of autoregressive models, the accuracy of autoencoders.
/// \shows{examples/13_saved_model.cpp,main}

#include "calm/evaluate/distributed_evaluation.hpp"
#include "calm/evaluate/evaluate.hpp"
#include "calm/evaluate/evaluate_autoencoder.hpp"
#include "calm/evaluate/evaluation.hpp"
#include "calm/evaluate/evaluation_settings.hpp"
