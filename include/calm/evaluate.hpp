#pragma once
// Evaluation on unseen text: BrierLM, likelihoods of autoregressive models, the accuracy of autoencoders.

#include "calm/evaluate/evaluate.hpp"
