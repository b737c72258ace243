"""SEIKO and PURE_SEIKO: a pretrained diffusion model, tuned to a reward that is costly to ask for (PyTorch)."""
