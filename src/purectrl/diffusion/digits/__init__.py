"""The small class-conditional diffusion model of handwritten digits that is part of the package.

network     the denoiser, its noise schedule and its weights
classifier  an independent classifier of digits, for evaluation

`scripts/train_digits` trains both.
"""
