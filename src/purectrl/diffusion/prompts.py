"""The prompts of the paper's experiment: animals, each a prompt of one word.

    "the training phase utilizes prompts from a predefined list of 50 animals [Black et al., 2023; Prabhudesai et al., 2023],
    while the evaluation phase employs the following unseen animal prompts: snail, hippopotamus, cheetah, crocodile,
    lobster, and octopus."                                                                          (appendix E, Prompts)

The paper does not print its list, and the list that the two cited works share has 45 names: `PUBLISHED`. `ADDED` has five
more common animals, which are in neither list. Comparisons with the cited works should use `PUBLISHED`.
"""

# fmt: off
PUBLISHED = (
    "cat", "dog", "horse", "monkey", "rabbit", "zebra", "spider", "bird", "sheep", "deer", "cow", "goat", "lion", "tiger",
    "bear", "raccoon", "fox", "wolf", "lizard", "beetle", "ant", "butterfly", "fish", "shark", "whale", "dolphin",
    "squirrel", "mouse", "rat", "snake", "turtle", "frog", "chicken", "duck", "goose", "bee", "pig", "turkey", "fly",
    "llama", "camel", "bat", "gorilla", "hedgehog", "kangaroo",
)
# fmt: on
"""The 45 animals of Black et al. (2023)."""

ADDED = ("elephant", "giraffe", "penguin", "owl", "panda")
"""Five animals that complete the 50."""

TRAINING = PUBLISHED + ADDED
"""Prompts that are measured."""

UNSEEN = ("snail", "hippopotamus", "cheetah", "crocodile", "lobster", "octopus")
"""Prompts of the evaluation alone."""
