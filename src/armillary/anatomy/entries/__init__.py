"""How does a model start its stream? From narrow embeddings, from patches of images, from sound."""
