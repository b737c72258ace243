"""The embedded job `digits`: a small class-conditional diffusion model of handwritten digits, with everything around it.

data       real MNIST digits, in two halves that never meet
network    the denoiser and its noise schedule; weights come with the package
sampling   plain DDIM, to look at the denoiser by itself
judge      a classifier trained on the other half: the second opinion, and diversity
pretrain   `python -m purectrl.diffusion.digits.pretrain` makes the weights
"""
