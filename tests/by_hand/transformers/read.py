"""read.py FOLDER: loads the models that compare.cpp wrote to FOLDER with transformers, and compares the logits."""
import glob
import os
import sys

import numpy
import torch
from transformers import LlamaForCausalLM

root = sys.argv[1]
tokens = torch.from_numpy(numpy.fromfile(os.path.join(root, "tokens"), "<i4").astype("int64")).reshape(2, 33)
for logits in sorted(glob.glob(os.path.join(root, "*.ours"))):
    path = logits.removesuffix(".ours")
    model, told = LlamaForCausalLM.from_pretrained(path, torch_dtype=torch.float32, output_loading_info=True)
    with torch.no_grad():
        theirs = model.eval()(tokens).logits.numpy().ravel()
    ours = numpy.fromfile(logits, "<f4")
    print(f"{os.path.basename(path)}: largest difference {abs(theirs - ours).max():.2e} of logits up to {abs(ours).max():.2f}",
          {key: names for key, names in told.items() if names} or "")
